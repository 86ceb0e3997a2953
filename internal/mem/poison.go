package mem

// poison overwrites freed memory.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
