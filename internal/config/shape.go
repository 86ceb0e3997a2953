package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// misfit finds the first value that doesn't fit its field. In that case the YAML library's errors name Go types and
// lack the line of text that a type of ours refuses, and it truncates 1.5 to 1.
func misfit(file *ast.File) *FieldError {
	for _, doc := range file.Docs {
		if e := misfitIn(doc.Body, reflect.TypeFor[Config](), ""); e != nil {
			return e
		}
	}
	return nil
}

// misfitIn is misfit for a node whose field has type t. What it doesn't handle (aliases, single values with tags, null)
// it leaves to the library.
func misfitIn(node ast.Node, t reflect.Type, field string) *FieldError {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := ""
	switch n := node.(type) {
	case *ast.AnchorNode:
		if _, ok := n.Value.(*ast.NullNode); !ok {
			return misfitIn(n.Value, t, field)
		}
		want = "a value after the anchor" // an alias would say nothing in its place
	case *ast.TagNode:
		switch n.Value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.AnchorNode:
			return misfitIn(n.Value, t, field)
		}
	case *ast.MappingNode:
		return misfitMapping(n, n.Values, t, field)
	case *ast.MappingValueNode:
		return misfitMapping(n, []*ast.MappingValueNode{n}, t, field)
	case *ast.SequenceNode:
		if t.Kind() != reflect.Slice {
			want = wanted(t, field)
			break
		}
		for i, v := range n.Values {
			if e := misfitIn(v, t.Elem(), fmt.Sprintf("%s[%d]", field, i)); e != nil {
				return e
			}
		}
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.BoolNode:
		return misfitText(node, t, field)
	}
	if want == "" {
		return nil
	}
	return unwanted(node, want, field)
}

// unwanted says what a node should be.
func unwanted(node ast.Node, want, field string) *FieldError {
	return &FieldError{Field: field, Line: node.GetToken().Position.Line, Err: fmt.Errorf("want %s", want)}
}

// misfitMapping checks a mapping, node, with its values.
func misfitMapping(node ast.Node, values []*ast.MappingValueNode, t reflect.Type, field string) *FieldError {
	if v, isText := reflect.New(t).Interface().(encoding.TextUnmarshaler); isText && len(values) == 1 {
		// Between braces the YAML library takes the colon of tcp://192.0.2.1:4420 for that of a mapping, and yet passes
		// the whole text to v.
		if text, ok := torn(values[0]); ok {
			if err := v.UnmarshalText([]byte(text)); err != nil {
				return &FieldError{Field: field, Line: node.GetToken().Position.Line, Err: err}
			}
			return nil
		}
	} else if !isText && t.Kind() == reflect.Struct {
		return misfitAmong(values, t, field)
	}
	return unwanted(node, wanted(t, field), field)
}

// torn returns the text of a key and a value with only the colon between them.
func torn(v *ast.MappingValueNode) (string, bool) {
	key, value := v.Key.GetToken(), v.Value.GetToken()
	if key.Position.Line != value.Position.Line || key.Position.Column+len(key.Value)+1 != value.Position.Column {
		return "", false
	}
	return key.Value + ":" + value.Value, true
}

// misfitAmong checks the values of a mapping.
func misfitAmong(values []*ast.MappingValueNode, t reflect.Type, field string) *FieldError {
	for _, v := range values {
		if v.Key.IsMergeKey() {
			if e := misfitMerged(v.Value, t, field); e != nil {
				return e
			}
			continue
		}
		key := nameOf(v.Key)
		f, ok := fieldOf(t, key)
		if !ok {
			continue // the library reports unknown keys
		}
		name := strings.TrimPrefix(field+"."+key, ".")
		if admits(t, key) && saysNothing(v.Value) {
			return &FieldError{Field: name, Line: v.GetToken().Position.Line, Err: errOpen}
		}
		if e := misfitIn(v.Value, f, name); e != nil {
			return e
		}
	}
	return nil
}

// misfitMerged checks what "<<" merges into a mapping: one mapping, or a list of them.
func misfitMerged(node ast.Node, t reflect.Type, field string) *FieldError {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return misfitIn(node, t, field)
	}
	for _, v := range list.Values {
		if e := misfitIn(v, t, field); e != nil {
			return e
		}
	}
	return nil
}

// nameOf returns a key without what may precede it.
func nameOf(key ast.Node) string {
	for {
		switch n := key.(type) {
		case *ast.MappingKeyNode: // "? "
			key = n.Value
		case *ast.AnchorNode:
			key = n.Value
		case *ast.TagNode:
			key = n.Value
		default:
			return key.GetToken().Value
		}
	}
}

// errOpen is for a key that restricts access but is empty, which would let everybody in: its lines may be commented
// out, or it was meant to let nobody in. Subsystem.check finds an empty list that is hidden by an alias or a tag.
var errOpen = errors.New("it is empty: name who may connect; left out altogether, it lets every host in")

// admits reports whether every host is let in if a key of t is left out.
func admits(t reflect.Type, key string) bool {
	return t == reflect.TypeFor[Subsystem]() && key == "hosts" || t == reflect.TypeFor[Config]() && key == "authentication"
}

// saysNothing reports whether a value is null, or an empty list.
func saysNothing(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.NullNode:
		return true
	case *ast.TagNode:
		return saysNothing(n.Value)
	case *ast.SequenceNode:
		return len(n.Values) == 0
	}
	return false
}

// misfitText checks a single value.
func misfitText(node ast.Node, t reflect.Type, field string) *FieldError {
	tk := node.GetToken()
	e := &FieldError{Field: field, Value: strconv.Quote(tk.Value), Line: tk.Position.Line}
	if number, ok := changed(node, t); ok {
		e.Err = fmt.Errorf("YAML takes it for the number %s: put it in quotes", number)
		return e
	}
	if v, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler); ok {
		if e.Err = v.UnmarshalText([]byte(tk.Value)); e.Err == nil {
			return nil
		}
		e.Value = "" // the error contains it
		return e
	}
	_, isBool := node.(*ast.BoolNode)
	fits := true
	switch t.Kind() {
	case reflect.Bool:
		fits = isBool
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, isInt := node.(*ast.IntegerNode)
		if isInt && isTwofold(n) {
			e.Err = fmt.Errorf("YAML takes it for the number %v: leave out the zero in front", n.Value)
			return e
		}
		fits = isInt && inRange(n.Value, t)
	case reflect.Struct, reflect.Slice, reflect.Array:
		fits = false
	}
	if fits {
		return nil
	}
	want := wanted(t, field)
	if tk.Type == token.DoubleQuoteType || tk.Type == token.SingleQuoteType {
		want += ", without quotes"
	}
	e.Err = fmt.Errorf("want %s", want)
	return e
}

// changed returns the number as which a value is read where text is expected, if that differs from what is written:
// YAML reads 0001 as 1, 010 as 8 and .inf as +Inf, which may be the path of a different file.
func changed(node ast.Node, t reflect.Type) (read string, ok bool) {
	if _, isText := reflect.New(t).Interface().(encoding.TextUnmarshaler); !isText && t.Kind() != reflect.String {
		return "", false
	}
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		err := yaml.NodeToValue(node, &read)
		return read, err != nil || read != node.GetToken().Value
	}
	return "", false
}

// isTwofold reports whether an integer isn't read as a person would read it: 010 is 8 to the YAML library, as in YAML
// 1.1, and 10 in YAML 1.2.
func isTwofold(n *ast.IntegerNode) bool {
	plain, err := strconv.ParseInt(strings.ReplaceAll(n.GetToken().Value, "_", ""), 10, 64)
	return err == nil && fmt.Sprint(plain) != fmt.Sprint(n.Value)
}

// inRange reports whether a number, an int64 or uint64, fits t.
func inRange(number any, t reflect.Type) bool {
	zero := reflect.Zero(t)
	switch n := number.(type) {
	case int64:
		return zero.CanInt() && !zero.OverflowInt(n) || zero.CanUint() && n >= 0 && !zero.OverflowUint(uint64(n))
	case uint64:
		return zero.CanInt() && n < 1<<63 && !zero.OverflowInt(int64(n)) || zero.CanUint() && !zero.OverflowUint(n)
	}
	return false
}

// largest holds the largest values of whole numbers that can't be negative, by key.
var largest = map[string]uint32{"nsid": target.MaxNSID, "ana_group": target.MaxANAGroup, "group": target.MaxANAGroup}

// wanted describes the values that a field of type t takes.
func wanted(t reflect.Type, field string) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "one value"
	}
	switch t.Kind() {
	case reflect.Struct:
		return `keys with values, as "key: value"`
	case reflect.Slice:
		return "a list, as [a, b]"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 1 to %d", largest[field[strings.LastIndexByte(field, '.')+1:]])
	}
	return "one value"
}

// fieldOf returns the type of the struct's field with a key.
func fieldOf(t reflect.Type, key string) (reflect.Type, bool) {
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name == key {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
