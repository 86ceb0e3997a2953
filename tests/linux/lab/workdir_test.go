package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep: what a killed run left is removed; what a run uses, or has just made, stays.
func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{
		workPrefix + "killed": old, workPrefix + "used": old, workPrefix + "new": time.Now(), "other": old,
	} {
		if err := os.MkdirAll(filepath.Join(tmp, name, "inside"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(tmp, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockDir(filepath.Join(tmp, workPrefix+"used"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	sweep(tmp)
	for name, want := range map[string]bool{"killed": false, "used": true, "new": true} {
		if _, err := os.Stat(filepath.Join(tmp, workPrefix+name)); (err == nil) != want {
			t.Errorf("%s: is there: %v, want %v", name, err == nil, want)
		}
	}
	if _, err := os.Stat(filepath.Join(tmp, "other")); err != nil {
		t.Error(err)
	}
}
