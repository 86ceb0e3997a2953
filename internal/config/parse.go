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
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 4 << 20

// Load reads a file. Errors are *FieldError, or those of the file system.
func Load(path string) (*Config, error) {
	c, _, err := LoadText(path)
	return c, err
}

// LoadText is Load with what the file held, which may be a pipe that is read once.
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

// Parse reads YAML; name is what errors call it. The Config is valid, and not yet complete.
func Parse(name string, b []byte) (*Config, error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors begin a text with the mark, and YAML lets them
	if fe := notUTF8(b); fe != nil {
		fe.File = name
		return nil, fe
	}
	var file *ast.File
	err := guarded(func() (err error) { file, err = parser.ParseBytes(b, 0); return err })
	if err != nil {
		return nil, located(name, err)
	}
	var fe *FieldError
	if err := guarded(func() error { fe = cmp.Or(second(file), misfit(file)); return nil }); err != nil {
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

// notUTF8 finds a line that the YAML library would read as another, which may have the path of another file.
func notUTF8(b []byte) *FieldError {
	n := 0
	for line := range bytes.Lines(b) {
		if n++; !utf8.Valid(line) {
			return &FieldError{Line: n, Err: errors.New("it is not UTF-8: write it so; a path that is not needs another name, or a link that has one")}
		}
	}
	return nil
}

// second finds a second YAML document, which would be left out without a word.
func second(file *ast.File) *FieldError {
	seen := false
	for _, doc := range file.Docs {
		if again := emptied(doc); again != nil {
			return &FieldError{Line: again.Position.Line, Err: errors.New("the document above is empty: a configuration is one, so leave out this \"---\"")}
		}
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue // a directive, as %YAML, is of the document below it
		}
		if seen {
			return &FieldError{Line: doc.Body.GetToken().Position.Line, Err: errors.New("a second document begins above: a configuration is one, so leave out its \"---\"")}
		}
		seen = true
	}
	return nil
}

// emptied is the "---" that follows that of a document, which has nothing in it then. The YAML library leaves out what
// is below.
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

// errMalformed is what the YAML library has no error for.
var errMalformed = errors.New("this is no YAML: look for a stray \"!\", or a control character")

// guarded calls the YAML library, which takes some malformed text, as a tag without a value, and then
// panics: a running target that reads its file again may not end of that.
func guarded(call func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errMalformed
		}
	}()
	return call()
}

// Marshal writes c as Parse reads it.
func (c *Config) Marshal() ([]byte, error) {
	return yaml.MarshalWithOptions(c, yaml.IndentSequence(true), yaml.CustomMarshaler(marshalText))
}

// errNotUTF8 is that of a text that a file can't say: what would be written instead may be the path of another file.
var errNotUTF8 = errors.New("it is not UTF-8, which a configuration is written in: give it another name, or a link that has one")

// marshalText writes a text, in quotes where the YAML library would write one that it reads as another, or can't read: it
// leaves out a tab, begins a key at "? ", makes a number of .inf, and knows no text that is ---.
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

// means tells whether YAML is read as a text: by itself, as the YAML library reads it again, as the value of a key, and
// as one of a list.
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

// located makes a *FieldError of an error of the YAML library.
func located(name string, err error) *FieldError {
	fe := &FieldError{File: name, Err: errors.New(firstLine(err.Error()))}
	var tk *token.Token
	if y := yaml.Error(nil); errors.As(err, &y) {
		fe.Err, tk = errors.New(y.GetMessage()), y.GetToken()
	}
	switch text := fe.Err.Error(); {
	case strings.Contains(text, "'\t'"):
		fe.Err = errors.New("the line is indented by a tab: want spaces")
	case text == "non-map value is specified", text == "unexpected key name":
		fe.Err = errors.New(`want keys with values, as "key: value"`)
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

// unknownKey says that a key is none where it stands, and which is near.
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
