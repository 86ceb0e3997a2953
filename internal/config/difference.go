package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
)

// Difference finds the first field in which two structs of a configuration, both of one type, differ. It returns the
// field's name in the file, within the struct, and both values as they are written there; an empty name says that there
// is no difference.
func Difference(a, b any) (name, of, other string) {
	return difference(reflect.ValueOf(a), reflect.ValueOf(b))
}

func difference(a, b reflect.Value) (name, of, other string) {
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		name, _, _ = strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
		if t := x.Type(); t.Kind() == reflect.Pointer && isMapping(t.Elem()) {
			x, y = pointedTo(x), pointedTo(y)
		}
		if !isMapping(x.Type()) {
			return name, written(x), written(y)
		}
		within, of, other := difference(x, y)
		return name + "." + within, of, other
	}
	return "", "", ""
}

// isMapping reports whether a type is written as keys with values.
func isMapping(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// pointedTo returns what a pointer points to; for nil, a value with nothing set.
func pointedTo(p reflect.Value) reflect.Value {
	if p.IsNil() {
		return reflect.Zero(p.Type().Elem())
	}
	return p.Elem()
}

// written returns a value as it is written in the file, or says that the file leaves it out.
func written(v reflect.Value) string {
	if v.IsZero() && v.Kind() != reflect.Bool {
		return "the default"
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(v.Interface())
}
