//go:build !invariants

package mem

const invariants = false
