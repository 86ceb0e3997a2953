package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 4 << 20

// Load reads a file. Errors are *FieldError, or from the file system.
func Load(path string) (*Config, error) {
	c, _, err := LoadText(path)
	return c, err
}

// LoadText is Load, but also returns the file's content: the file may be a pipe, which can be read only once.
func LoadText(path string) (*Config, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(b) > maxFile {
		return nil, nil, &FieldError{File: path, Err: fmt.Errorf("more than %d bytes", maxFile)}
	}
	c, err := Parse(path, b)
	return c, b, err
}

// Parse parses YAML; name is the name to use in errors. The Config is valid, but not yet complete.
func Parse(name string, b []byte) (*Config, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors write a byte order mark, and YAML allows it
	if fe := notUTF8(b); fe != nil {
		fe.File = name
		return nil, fe
	}
	var file *ast.File
	var fe *FieldError
	err := guarded(func() (err error) {
		tokens := lexer.Tokenize(string(b))
		if fe = tooDeep(tokens); fe == nil {
			file, err = parser.Parse(tokens, 0)
		}
		return err
	})
	if err != nil {
		return nil, located(name, err)
	}
	if fe == nil {
		err = guarded(func() error { fe = cmp.Or(second(file), endless(file), swollen(file), misfit(file)); return nil })
	}
	if err != nil {
		return nil, located(name, err)
	}
	if fe != nil {
		fe.File = name
		return nil, fe
	}
	c := &Config{}
	err = guarded(func() error { return yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(c) })
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, located(name, err)
	}
	if err := c.Validate(); err != nil {
		var fe *FieldError
		if errors.As(err, &fe) {
			fe.File, fe.Line = name, lineOf(file, fe.Field)
		}
		return nil, err
	}
	return c, nil
}

// notUTF8 finds a line that isn't UTF-8, which the YAML library would read as different text, perhaps as the path of a
// different file.
func notUTF8(b []byte) *FieldError {
	n := 0
	for line := range bytes.Lines(b) {
		if n++; !utf8.Valid(line) {
			return &FieldError{Line: n, Err: errors.New("it is not UTF-8: write it so; a path that is not needs another name, or a link that has one")}
		}
	}
	return nil
}

// maxDepth bounds how deep lists and keys may lie in one another; those of a configuration do so six deep. Per level the
// YAML library takes memory for the names of all levels above: gigabytes for 50,000 brackets, which would end a running
// target that reads its file again.
const maxDepth = 100

// tooDeep finds where brackets, or what a single line begins ("- - - a"), are nested deeper than maxDepth. Deeper
// indentation needs no limit: so many spaces don't fit into a file.
func tooDeep(tokens token.Tokens) *FieldError {
	brackets, line, begun := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, begun = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets = max(brackets-1, 0)
		case token.SequenceEntryType, token.MappingKeyType:
			begun++
		}
		if brackets > maxDepth || begun > maxDepth {
			return &FieldError{Line: line, Err: fmt.Errorf("lists or keys lie in one another more than %d deep", maxDepth)}
		}
	}
	return nil
}

// second finds a second YAML document, which would otherwise be ignored silently.
func second(file *ast.File) *FieldError {
	seen := false
	for _, doc := range file.Docs {
		if again := emptied(doc); again != nil {
			return &FieldError{Line: again.Position.Line, Err: errors.New("the document above is empty: a configuration is one, so leave out this \"---\"")}
		}
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue // a directive, such as %YAML, belongs to the document below it
		}
		if seen {
			return &FieldError{Line: doc.Body.GetToken().Position.Line, Err: errors.New("a second document begins above: a configuration is one, so leave out its \"---\"")}
		}
		seen = true
	}
	return nil
}

// endless finds an alias within what its anchor marks. The YAML library's errors about it lack the line, or name Go types.
func endless(file *ast.File) *FieldError {
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		for _, n := range ast.Filter(ast.AnchorType, doc.Body) {
			anchor := n.(*ast.AnchorNode)
			name := anchor.Name.GetToken().Value
			for _, a := range ast.Filter(ast.AliasType, anchor.Value) {
				if a.(*ast.AliasNode).Value.GetToken().Value == name {
					return &FieldError{Line: a.GetToken().Position.Line, Err: fmt.Errorf("*%s is part of what &%s marks, which would have no end: write out what is meant", name, name)}
				}
			}
		}
	}
	return nil
}

// maxRepeated bounds how many values aliases repeat. The YAML library reads them again for each alias: where those repeat
// others, one line more takes twice as long, and 40 lines keep a running target that reads its file again busy for years.
const maxRepeated = 1 << 20

// swollen finds the alias with which more than maxRepeated values are repeated.
func swollen(file *ast.File) *FieldError {
	r := repetition{marked: make(map[string]int)}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			ast.Walk(&r, doc.Body)
		}
	}
	return r.beyond
}

// repetition counts values as often as aliases repeat them.
type repetition struct {
	values   int            // that were passed, and repeated
	repeated int            // of them
	marked   map[string]int // by the name of the anchor
	beyond   *FieldError
}

// Visit implements [ast.Visitor].
func (r *repetition) Visit(node ast.Node) ast.Visitor {
	if r.beyond != nil {
		return nil
	}
	r.values++
	switch n := node.(type) {
	case *ast.AnchorNode:
		before := r.values
		ast.Walk(r, n.Value)
		r.marked[n.Name.GetToken().Value] = r.values - before
		return nil
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		r.values += r.marked[name]
		if r.repeated += r.marked[name]; r.repeated > maxRepeated {
			r.beyond = &FieldError{Line: n.GetToken().Position.Line, Err: fmt.Errorf("with *%s, aliases repeat more than %d values: write out what is meant", name, maxRepeated)}
		}
	}
	return r
}

// emptied returns the "---" that follows a document's own "---" directly, if the document is empty. The YAML library
// ignores what is below.
func emptied(doc *ast.DocumentNode) *token.Token {
	if doc.Start == nil || doc.Body != nil {
		return nil
	}
	next := doc.Start.Next
	for next != nil && next.Type == token.CommentType {
		next = next.Next
	}
	if next == nil || next.Type != token.DocumentHeaderType {
		return nil
	}
	return next
}

// errMalformed is used where the YAML library has no error.
var errMalformed = errors.New("this is no YAML: look for a stray \"!\", or a control character")

// guarded calls the YAML library, which accepts some malformed text, such as a tag without a value, and then panics:
// that must not end a running target that reads its file again.
func guarded(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errMalformed
		}
	}()
	return call()
}

// Marshal formats c so that Parse can read it.
func (c *Config) Marshal() ([]byte, error) {
	return yaml.MarshalWithOptions(c, yaml.IndentSequence(true), yaml.CustomMarshaler(marshalText))
}

// errNotUTF8 is for text that a file can't represent: what would be written instead may be the path of a different
// file.
var errNotUTF8 = errors.New("it is not UTF-8, which a configuration is written in: give it another name, or a link that has one")

// marshalText formats a string, with quotes where the YAML library would write something that it reads differently, or
// can't read: it drops a tab, takes "? " for the beginning of a key and .inf for a number, and can't read --- as text.
func marshalText(s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%q: %w", s, errNotUTF8)
	}
	plain, err := yaml.Marshal(s)
	if err == nil && !strings.HasPrefix(s, "?") && !strings.ContainsFunc(s, unicode.IsControl) && means(plain, s) {
		return plain, nil
	}
	return []byte(strconv.Quote(s)), nil
}

// means reports whether YAML is read as text: by itself, as the YAML library reads it again, as the value of a key, and
// as an element of a list.
func means(b []byte, text string) bool {
	var alone string
	var among struct {
		Key  string
		List []string
	}
	err := guarded(func() error {
		return errors.Join(yaml.Unmarshal(b, &alone), yaml.Unmarshal(fmt.Appendf(nil, "key: %slist:\n- %s", b, b), &among))
	})
	return err == nil && alone == text && among.Key == text && slices.Equal(among.List, []string{text})
}

// located converts an error of the YAML library to a *FieldError.
func located(name string, err error) *FieldError {
	fe := &FieldError{File: name, Err: errors.New(firstLine(err.Error()))}
	var tk *token.Token
	if y := yaml.Error(nil); errors.As(err, &y) {
		fe.Err, tk = errors.New(y.GetMessage()), y.GetToken()
	}
	switch text := fe.Err.Error(); {
	case strings.Contains(text, "'\t'"), strings.HasPrefix(text, "tab character"):
		fe.Err = errors.New("the line is indented by a tab: want spaces")
	case strings.HasSuffix(text, "is a reserved character"), text == "unexpected directive value. document not started":
		fe.Err = errors.New("a value that begins with @, ` or % has to be in quotes")
	case strings.Contains(text, "end token"):
		fe.Err = errors.New("what is opened here by a bracket or brace isn't closed")
	case text == "unexpected scalar value type":
		fe.Err = errors.New("a value is missing: look for a comma too many")
	case text == "non-map value is specified", text == "unexpected key name":
		fe.Err = errors.New(`want keys with values, as "key: value"`)
	case strings.HasPrefix(text, "duplicate key "):
		fe.Err = fmt.Errorf(`%s is given here, and in what "<<" merges, too: leave one of them out`, strings.TrimPrefix(text, "duplicate key "))
	case strings.HasPrefix(text, "could not find alias "):
		fe.Err = fmt.Errorf("there is no anchor %s above: put the value in quotes if it is no alias", strings.TrimPrefix(text, "could not find alias "))
	case strings.Contains(text, "not allowed in this context"):
		fe.Err = errors.New("it doesn't belong here: look whether this line is indented as those beside it, and whether a value with \": \" lacks its quotes")
	}
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		fe.Err = unknownKey(unknown.Token.Value)
	}
	if tk != nil && tk.Position != nil {
		fe.Line = tk.Position.Line
	}
	return fe
}

// unknownKey says that a key doesn't exist in its place, and which similar one does.
func unknownKey(key string) error {
	known := keys(reflect.TypeFor[Config](), nil)
	if slices.Contains(known, key) {
		return fmt.Errorf("there is no key %q here: it belongs to something else, which the indentation decides", key)
	}
	if near := cli.Nearest(key, known); near != "" {
		return fmt.Errorf("there is no key %q; is %q meant?", key, near)
	}
	return fmt.Errorf("there is no key %q; nvmetgt check --help shows those that there are", key)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
