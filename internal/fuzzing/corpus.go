package fuzzing

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// corpusHead is the first line of a corpus entry in Go's format.
const corpusHead = "go test fuzz v1\n"

// readCorpus reads the entries of a directory whose arguments have the given types. Entries
// with other types, from a time when the target took those, are skipped.
func readCorpus(dir string, types []reflect.Type) ([][]any, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files) // an order that a seed can rely on
	var all [][]any
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if args, ok := parseEntry(b, types); ok {
			all = append(all, args)
		}
	}
	return all, nil
}

// parseEntry parses an entry with arguments of the given types.
func parseEntry(b []byte, types []reflect.Type) (args []any, ok bool) {
	text, ok := bytes.CutPrefix(b, []byte(corpusHead))
	if !ok {
		return nil, false
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n") // a journal ends in blank lines
	if len(lines) != len(types) {
		return nil, false
	}
	for i, kind := range types {
		name, literal, _ := strings.Cut(lines[i], "(")
		literal, ok = strings.CutSuffix(literal, ")")
		if name == "byte" { // as Go writes a uint8
			name = "uint8"
			if r, _, tail, err := strconv.UnquoteChar(strings.Trim(literal, "'"), '\''); err == nil && tail == "" && literal[0] == '\'' {
				literal = strconv.Itoa(int(r))
			}
		}
		if !ok || name != typeName(kind) {
			return nil, false
		}
		v, err := parseLiteral(literal, kind)
		if err != nil {
			return nil, false
		}
		args = append(args, v)
	}
	return args, true
}

func typeName(t reflect.Type) string {
	if t == reflect.TypeFor[[]byte]() {
		return "[]byte"
	}
	return t.Name()
}

func parseLiteral(literal string, t reflect.Type) (any, error) {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Slice, reflect.String:
		s, err := strconv.Unquote(literal)
		return reflect.ValueOf(s).Convert(t).Interface(), err
	case reflect.Bool:
		return strconv.ParseBool(literal)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(literal, 0, t.Bits())
		v.SetUint(n)
		return v.Interface(), err
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(literal, 0, t.Bits())
		v.SetInt(n)
		return v.Interface(), err
	default:
		return nil, fmt.Errorf("no target takes a %v", t)
	}
}

// appendEntry appends arguments as an entry.
func appendEntry(b []byte, args []any) []byte {
	b = append(b, corpusHead...)
	for _, a := range args {
		switch a := a.(type) {
		case []byte:
			b = append(strconv.AppendQuote(append(b, "[]byte("...), string(a)), ")\n"...)
		case string:
			b = append(strconv.AppendQuote(append(b, "string("...), a), ")\n"...)
		case uint8:
			b = fmt.Appendf(b, "byte(%q)\n", a)
		default:
			b = fmt.Appendf(b, "%T(%v)\n", a, a)
		}
	}
	return b
}

// keep adds arguments as an entry to the target's corpus in the tree, and returns its path.
func keep(target string, args []any) (string, error) {
	b := appendEntry(nil, args)
	path := filepath.Join(entries(target), fmt.Sprintf("%x", sha256.Sum256(b))[:16])
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, b, 0o644)
}

// entries returns the directory with a target's entries in a package.
func entries(target string) string { return filepath.Join("testdata", "fuzz", target) }
