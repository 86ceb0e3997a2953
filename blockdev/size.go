package blockdev

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
)

// ParseSize parses a size as people write it: "1GiB", "64MiB", "4096", and "4k" or "1G", which are powers of 1024 as in
// dd, fio and qemu. "1GB" is a power of 1000.
func ParseSize(s string) (int64, error) {
	t := strings.TrimSpace(s)
	if t != "" && strings.ContainsRune("kKmMgGtTpPeE", rune(t[len(t)-1])) {
		t += "iB"
	}
	n, err := humanize.ParseBytes(t)
	if err != nil && strings.HasPrefix(err.Error(), "too large") {
		return 0, errTooLarge(s)
	}
	// ParseBytes ignores commas, so that 1,5GiB would be 15 GiB.
	if err != nil || strings.HasPrefix(t, "-") || strings.Contains(t, ",") {
		return 0, fmt.Errorf("size %q: write it as 4096, 64MiB or 1GiB", s)
	}
	if n > math.MaxInt64 {
		return 0, errTooLarge(s)
	}
	return int64(n), nil
}

// ErrTooLarge is a size that no volume can have.
var ErrTooLarge = errors.New("want less than 8 EiB, as no volume has more")

func errTooLarge(s string) error { return fmt.Errorf("size %q: %w", s, ErrTooLarge) }

// FormatSize formats a size for people: "1.0 GiB", followed by the exact size if that is rounded.
func FormatSize(n int64) string {
	h := humanize.IBytes(uint64(n))
	if back, err := humanize.ParseBytes(h); err == nil && back == uint64(n) {
		return h
	}
	return fmt.Sprintf("%s (%s bytes)", h, humanize.Comma(n))
}
