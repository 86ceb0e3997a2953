// Package page writes the parts of documents that programs make.
package page

import (
	"fmt"
	"os"
	"strings"
)

// Rewrite puts text between two lines of a file.
func Rewrite(path, begin, end, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no markers: want a line %q and after it %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(head+begin+text+end+tail), 0o644)
}
