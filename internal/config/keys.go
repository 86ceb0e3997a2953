package config

import (
	"encoding"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// keys are the names of all fields of a struct and of those in it.
func keys(t reflect.Type, all []string) []string {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return all
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		all = keys(t.Field(i).Type, append(all, name))
	}
	return all
}

// lineOf is the line of a field, or of the innermost thing around it that is there; 0 where
// there is nothing.
func lineOf(file *ast.File, field string) int {
	for field != "" {
		path, err := yaml.PathString("$." + field)
		if err != nil {
			return 0
		}
		if node, err := path.FilterFile(file); err == nil && node.GetToken() != nil {
			return node.GetToken().Position.Line
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return 0
}

// lineOfText is the line of the first value whose own text its type refuses: the YAML library
// doesn't say where that was. 0 where there is none.
func lineOfText(file *ast.File) (line int) {
	for _, doc := range file.Docs {
		if line = badText(doc.Body, reflect.TypeFor[Config]()); line > 0 {
			return line
		}
	}
	return 0
}

func badText(node ast.Node, t reflect.Type) (line int) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler); ok {
		if v.UnmarshalText([]byte(node.GetToken().Value)) != nil {
			return node.GetToken().Position.Line
		}
		return 0
	}
	switch n := node.(type) {
	case *ast.SequenceNode:
		for _, v := range n.Values {
			if t.Kind() == reflect.Slice && line == 0 {
				line = badText(v, t.Elem())
			}
		}
	case *ast.MappingNode:
		for _, v := range n.Values {
			if f, ok := fieldOf(t, v.Key.GetToken().Value); ok && line == 0 {
				line = badText(v.Value, f)
			}
		}
	case *ast.MappingValueNode:
		if f, ok := fieldOf(t, n.Key.GetToken().Value); ok {
			line = badText(n.Value, f)
		}
	}
	return line
}

// fieldOf is the type of a struct's field that has a key.
func fieldOf(t reflect.Type, key string) (reflect.Type, bool) {
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name == key {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
