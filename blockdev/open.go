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
	// Path returns the path that arg begins with. It is nil if volumes of this kind have no file.
	Path func(arg string) string
	// Check reports why Open can't open what arg says, as far as that can be told without looking at any file. It may
	// be nil.
	Check func(arg string, o Options) error
}

// ownKinds returns the kinds of this package.
func ownKinds() []Kind {
	return []Kind{
		{Name: "file", Form: "PATH or file:PATH", Open: OpenFile, Path: func(arg string) string { return arg }},
		sizedKind("mem", NewMemory),
		sizedKind("null", NewNull),
	}
}

// Open opens the volume that spec names: "disk.img", "mem:1GiB", "null:1TiB". Kinds of other packages are passed in
// more: Open(spec, o, persist.Kind()).
func Open(spec string, o Options, more ...Kind) (Volume, error) {
	kinds := append(ownKinds(), more...)
	name, arg, found := strings.Cut(spec, ":")
	if found {
		i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
		if i >= 0 {
			return kinds[i].Open(arg, o)
		}
		// A misspelt kind must not create a file of that name, but an existing file may have a colon in its name.
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

// CheckSpec reports why Open can't open the volume that spec names, as far as that can be told without looking at any
// file. A spec that doesn't begin with a kind may be a file with a colon in its name.
func CheckSpec(spec string, o Options, more ...Kind) error {
	name, arg, found := strings.Cut(spec, ":")
	kinds := append(ownKinds(), more...)
	i := slices.IndexFunc(kinds, func(k Kind) bool { return found && k.Name == name })
	if i < 0 || kinds[i].Check == nil {
		return nil
	}
	return kinds[i].Check(arg, o)
}

// SplitSpec returns the path in spec, and what is before and behind it. path is empty if the volume has no file. A spec
// that doesn't begin with a kind is a path.
func SplitSpec(spec string, more ...Kind) (before, path, behind string) {
	name, arg, found := strings.Cut(spec, ":")
	kinds := append(ownKinds(), more...)
	i := slices.IndexFunc(kinds, func(k Kind) bool { return found && k.Name == name })
	switch {
	case i < 0:
		return "", spec, ""
	case kinds[i].Path == nil:
		return spec, "", ""
	}
	path = kinds[i].Path(arg)
	return spec[:len(name)+1], path, arg[len(path):]
}

func forms(kinds []Kind) string {
	var f []string
	for _, k := range kinds {
		f = append(f, k.Form)
	}
	return strings.Join(f, ", ")
}

// sizedKind returns a kind whose argument is its size, which Options.Size may give instead.
func sizedKind(name string, open func(Options) (Volume, error)) Kind {
	return Kind{
		Name: name, Form: name + ":SIZE",
		Open: func(arg string, o Options) (Volume, error) {
			if err := takeSize(name, arg, &o); err != nil {
				return nil, err
			}
			return open(o)
		},
		Check: func(arg string, o Options) error {
			if err := takeSize(name, arg, &o); err != nil {
				return err
			}
			return validateSized(name, &o)
		},
	}
}

// takeSize sets o.Size from arg.
func takeSize(name, arg string, o *Options) error {
	if arg == "" && o.Size == 0 {
		return OpenError(name, ErrInvalid, errors.New("it needs a size, as in "+name+":1GiB"))
	}
	if arg == "" {
		return nil
	}
	n, err := ParseSize(arg)
	if err != nil {
		return OpenError(name, ErrInvalid, err)
	}
	if o.Size != 0 && o.Size != n {
		return OpenError(name, ErrInvalid, fmt.Errorf("two sizes: %s and %s; leave one out",
			FormatSize(n), FormatSize(o.Size)))
	}
	o.Size = n
	return nil
}
