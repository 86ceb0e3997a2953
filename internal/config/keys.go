package config

import (
	"encoding"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// keys appends the names of all fields of a struct and of the structs in it.
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

// lineOf returns the line of a field, or of the innermost element around it that exists; 0 if
// there is none.
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
