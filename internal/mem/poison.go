package mem

// poison overwrites what was freed.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
