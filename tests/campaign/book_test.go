package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBook(t *testing.T) {
	dir := t.TempDir()
	log, page := filepath.Join(dir, "log"), filepath.Join(dir, "page")
	if err := os.WriteFile(page, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	one, other := target{"nvme", "FuzzA"}, target{"nvme/target", "FuzzB"}
	for range 2 { // the second continues where the first stopped
		b, err := openBook(log, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			b.add(one, guided, 1000, nil), b.add(one, unguided, 4000, nil), b.add(other, unguided, 10, errFinding), b.add(other, unguided, 0, errors.New("stopped")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := b.writePage([]target{one, other}, 10000); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "| `nvme` FuzzA | 10,000 | 2,000 | 0 | 20", "| `nvme/target` FuzzB | 20 | 0 | 2 | 20", "\n1 of 2 targets have reached 10,000 executions.\n", "after\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
