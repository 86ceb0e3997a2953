//go:build unix && !linux

package mem

// advise does nothing: other systems choose page sizes themselves.
func advise([]byte, pages) {}
