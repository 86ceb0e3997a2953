package cli

import "encoding"

// UnmarshalYAML implements the method of that name for a type that is parsed from text, where a file may have many of
// them. Of a type that has only UnmarshalText, the YAML library would format each value again, and for that go through
// the whole file.
func UnmarshalYAML(to encoding.TextUnmarshaler, decode func(any) error) error {
	var text string
	if err := decode(&text); err != nil {
		return err
	}
	return to.UnmarshalText([]byte(text))
}
