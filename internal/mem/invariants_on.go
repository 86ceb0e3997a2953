//go:build invariants

package mem

const invariants = true
