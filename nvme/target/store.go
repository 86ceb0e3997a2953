package target

// Store keeps what must outlive the target, and power failures: reservations that persist, blocks that
// are marked, write protection, what hosts make of a subsystem's namespaces, sanitize operations and
// events. Package statedir has one.
type Store interface {
	// Load gives what was saved last under a name; nil where nothing was.
	Load(name string) ([]byte, error)
	// Save replaces what is kept under a name. When it returns without an error the new
	// content survives a power failure; after an error, or a failure before it returns, the
	// old one or the new one does, whole. It may block.
	Save(name string, data []byte) error
	// Delete forgets what is kept under a name, where there is something.
	Delete(name string) error
}
