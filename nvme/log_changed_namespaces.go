package nvme

// ChangedNamespaces is the Changed Attached Namespace List log, 04h, a page of 4096 bytes.
type ChangedNamespaces struct {
	NSIDs NSIDList
	// TooMany says that more than MaxNSIDList namespaces changed, so that the log lists none.
	TooMany bool
}

// AppendTo appends the page.
func (p *ChangedNamespaces) AppendTo(b []byte) []byte {
	if p.TooMany || len(p.NSIDs) > MaxNSIDList {
		return NSIDList{NSIDAll}.AppendTo(b)
	}
	return p.NSIDs.AppendTo(b)
}

// Parse reads the page from b.
func (p *ChangedNamespaces) Parse(b []byte) error {
	l, err := ParseNSIDList(b)
	if err != nil {
		return err
	}
	*p = ChangedNamespaces{NSIDs: l}
	if len(l) > 0 && l[0] == NSIDAll {
		*p = ChangedNamespaces{TooMany: true}
	}
	return nil
}
