//go:build unix && !linux

package mem

// adviseHuge has nothing to ask for: other systems choose page sizes by themselves.
func adviseHuge([]byte) {}
