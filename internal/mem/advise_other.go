//go:build unix && !linux

package mem

// advise has nothing to ask for: other systems choose page sizes by themselves.
func advise([]byte, pages) {}
