package blockdev

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kind is a kind of volume that a specification can name: "NAME:ARGUMENT".
type Kind struct {
	Name string // "mem"
	Form string // how to write it, for people: "mem:SIZE"
	Open func(arg string, o Options) (Volume, error)
}

// ownKinds are those of this package.
func ownKinds() []Kind {
	return []Kind{
		{Name: "file", Form: "PATH or file:PATH", Open: OpenFile},
		{Name: "mem", Form: "mem:SIZE", Open: sized("mem", NewMemory)},
		{Name: "null", Form: "null:SIZE", Open: sized("null", NewNull)},
	}
}

// Open opens the volume that spec names: "disk.img", "mem:1GiB", "null:1TiB". Kinds of other
// packages are added by naming them: Open(spec, o, persist.Kind()).
func Open(spec string, o Options, more ...Kind) (Volume, error) {
	kinds := append(ownKinds(), more...)
	name, arg, found := strings.Cut(spec, ":")
	if found {
		i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
		if i >= 0 {
			return kinds[i].Open(arg, o)
		}
		// A misspelt kind must not become a file of that name, but one that exists may
		// have a colon in it.
		if _, err := os.Stat(spec); err != nil && !strings.Contains(name, "/") {
			return nil, OpenError(spec, ErrInvalid, fmt.Errorf("no kind of volume is called %q; there are %s; a file of that name is ./%s",
				name, forms(kinds), spec))
		}
	}
	if spec == "" {
		return nil, OpenError("volume", ErrInvalid, fmt.Errorf("nothing is named; write %s", forms(kinds)))
	}
	return OpenFile(spec, o)
}

func forms(kinds []Kind) string {
	var f []string
	for _, k := range kinds {
		f = append(f, k.Form)
	}
	return strings.Join(f, ", ")
}

// sized opens a kind whose argument is its size, which o.Size may give instead.
func sized(name string, open func(Options) (Volume, error)) func(string, Options) (Volume, error) {
	return func(arg string, o Options) (Volume, error) {
		if arg == "" && o.Size == 0 {
			return nil, OpenError(name, ErrInvalid, errors.New("it needs a size, as in "+name+":1GiB"))
		}
		if arg != "" {
			n, err := ParseSize(arg)
			if err != nil {
				return nil, OpenError(name, ErrInvalid, err)
			}
			if o.Size != 0 && o.Size != n {
				return nil, OpenError(name, ErrInvalid, fmt.Errorf("two sizes: %s and %s; leave one out",
					FormatSize(n), FormatSize(o.Size)))
			}
			o.Size = n
		}
		return open(o)
	}
}
