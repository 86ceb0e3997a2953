package main

import (
	"encoding/json"
	"testing"
)

// A name may come from a target, as an NQN does.
func TestObjectNames(t *testing.T) {
	const name = "nqn.2026-11.org.example:\U000e0001\a\"\\"
	b, err := json.Marshal(object{{name: name, value: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	if err := json.Unmarshal(b, &got); err != nil || got[name] != 1 {
		t.Errorf("%s: %v, %v", b, got, err)
	}
}
