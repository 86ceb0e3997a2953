package wrap

import (
	"errors"
	"slices"
	"strings"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// wrapper is a kind of volume that wraps another.
type wrapper struct {
	name string
	form string
	how  bool // it has an argument of its own before the volume
	wrap func(how string) (func(blockdev.Volume) blockdev.Volume, error)
}

var wrappers = []wrapper{
	{"delay", "delay:TIME:VOLUME", true, func(how string) (func(blockdev.Volume) blockdev.Volume, error) {
		least, most, err := parseDelay(how)
		return func(v blockdev.Volume) blockdev.Volume { return NewDelay(v, least, most) }, err
	}},
	{"fail", "fail:RULE:VOLUME", true, func(how string) (func(blockdev.Volume) blockdev.Volume, error) {
		rules, err := ParseRules(how)
		return func(v blockdev.Volume) blockdev.Volume { return NewFail(v, rules...) }, err
	}},
	{"freeze", "freeze:AFTER+TIME:VOLUME", true, func(how string) (func(blockdev.Volume) blockdev.Volume, error) {
		after, length, err := parseFreeze(how)
		return func(v blockdev.Volume) blockdev.Volume {
			f := NewFreezer(v)
			if length > 0 {
				f.Schedule(after, length)
			}
			return f
		}, err
	}},
	{"check", "check:VOLUME", false, func(string) (func(blockdev.Volume) blockdev.Volume, error) {
		return func(v blockdev.Volume) blockdev.Volume { return NewChecker(v) }, nil
	}},
}

// Kinds returns the wrappers, for blockdev.Open, and the further kinds that they may wrap besides those of blockdev.
func Kinds(more ...blockdev.Kind) []blockdev.Kind {
	all := slices.Clone(more)
	for _, w := range wrappers {
		all = append(all, blockdev.Kind{Name: w.name, Form: w.form})
	}
	for i, w := range wrappers {
		all[len(more)+i].Open = func(arg string, o blockdev.Options) (blockdev.Volume, error) {
			return w.open(arg, o, all)
		}
		all[len(more)+i].Check = func(arg string, o blockdev.Options) error {
			_, spec, err := w.parse(arg)
			if err != nil {
				return err
			}
			return blockdev.CheckSpec(spec, o, all...)
		}
	}
	return all
}

// open opens the volume below, and wraps it.
func (w *wrapper) open(arg string, o blockdev.Options, kinds []blockdev.Kind) (blockdev.Volume, error) {
	wrap, spec, err := w.parse(arg)
	if err != nil {
		return nil, err
	}
	v, err := blockdev.Open(spec, o, kinds...)
	if err != nil {
		return nil, err
	}
	return wrap(v), nil
}

// parse parses how to wrap, and which volume.
func (w *wrapper) parse(arg string) (wrap func(blockdev.Volume) blockdev.Volume, spec string, err error) {
	how, spec := "", arg
	if w.how {
		how, spec, _ = strings.Cut(arg, ":")
	}
	if spec == "" {
		return nil, "", blockdev.OpenError(w.name, blockdev.ErrInvalid, errors.New("no volume is named; write "+w.form))
	}
	if wrap, err = w.wrap(how); err != nil {
		return nil, "", blockdev.OpenError(w.name, blockdev.ErrInvalid, err)
	}
	return wrap, spec, nil
}

// Innermost returns the part of a specification that names the innermost volume, which everything else wraps.
func Innermost(spec string) string {
	for {
		name, rest, found := strings.Cut(spec, ":")
		i := slices.IndexFunc(wrappers, func(w wrapper) bool { return w.name == name })
		if !found || i < 0 {
			return spec
		}
		if wrappers[i].how {
			if _, rest, found = strings.Cut(rest, ":"); !found {
				return spec
			}
		}
		spec = rest
	}
}

// Find returns the wrappers of type T among the layers of v, from the outside in.
func Find[T blockdev.Volume](v blockdev.Volume) (all []T) {
	for {
		if x, ok := v.(T); ok {
			all = append(all, x)
		}
		outer, ok := v.(interface{ inner() blockdev.Volume })
		if !ok {
			return all
		}
		v = outer.inner()
	}
}
