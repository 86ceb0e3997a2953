package nvme

import "fmt"

// AuthNegotiate is AUTH_Negotiate, with which a host begins a transaction and offers DH-HMAC-CHAP.
type AuthNegotiate struct {
	TID  uint16
	SCC  uint8      // SC_C: secure channel concatenation; 0 is none
	Hash []AuthHash // HashIDList, up to 30
	DH   []DHGroup  // DHgIDList, up to 30
}

// Byte offsets in AUTH_Negotiate, and in a descriptor of DH-HMAC-CHAP.
const (
	negotiateOffSCC  = 6
	negotiateOffNAPD = 7
	negotiateHead    = 8

	authDescriptor      = 64
	descriptorOffAuthID = 0
	descriptorOffHALEN  = 2
	descriptorOffDHLEN  = 3
	descriptorOffHash   = 4
	descriptorOffDH     = 34
	maxAuthIDs          = 30 // of either list
)

// authIDDHCHAP is AuthID of a descriptor of DH-HMAC-CHAP.
const authIDDHCHAP = 1

// AppendTo appends the message, with one descriptor. Entries of a list beyond the 30th are left out.
func (n *AuthNegotiate) AppendTo(b []byte) []byte {
	b, m := startAuth(b, AuthNegotiateMessage, n.TID, negotiateHead+authDescriptor)
	m[negotiateOffSCC], m[negotiateOffNAPD] = n.SCC, 1
	d := m[negotiateHead:]
	d[descriptorOffAuthID] = authIDDHCHAP
	d[descriptorOffHALEN], d[descriptorOffDHLEN] = byte(min(len(n.Hash), maxAuthIDs)), byte(min(len(n.DH), maxAuthIDs))
	for i, h := range n.Hash[:d[descriptorOffHALEN]] {
		d[descriptorOffHash+i] = byte(h)
	}
	for i, g := range n.DH[:d[descriptorOffDHLEN]] {
		d[descriptorOffDH+i] = byte(g)
	}
	return b
}

// Parse reads the message and its first descriptor of DH-HMAC-CHAP; if there is none it returns
// AuthProtocolUnusable. The lists hold all identifiers that the host offers, even undefined ones.
func (n *AuthNegotiate) Parse(b []byte) error {
	var err error
	if n.TID, err = parseAuth(b, AuthNegotiateMessage, negotiateHead); err != nil {
		return err
	}
	n.SCC = b[negotiateOffSCC]
	count := int(b[negotiateOffNAPD])
	if count == 0 {
		return badAuth(AuthNegotiateMessage, "no protocol descriptor")
	}
	if _, err := parseAuth(b, AuthNegotiateMessage, negotiateHead+count*authDescriptor); err != nil {
		return err
	}
	for i := range count {
		d := b[negotiateHead+i*authDescriptor:][:authDescriptor]
		if d[descriptorOffAuthID] == authIDDHCHAP {
			return n.descriptor(d)
		}
	}
	return fmt.Errorf("nvme: %v: no protocol offered is DH-HMAC-CHAP: %w", AuthNegotiateMessage, AuthProtocolUnusable)
}

func (n *AuthNegotiate) descriptor(d []byte) error {
	halen, dhlen := int(d[descriptorOffHALEN]), int(d[descriptorOffDHLEN])
	if halen < 1 || halen > maxAuthIDs || dhlen < 1 || dhlen > maxAuthIDs {
		return badAuth(AuthNegotiateMessage, "%d hash functions and %d DH groups, want 1 to %d of each", halen, dhlen, maxAuthIDs)
	}
	n.Hash, n.DH = make([]AuthHash, halen), make([]DHGroup, dhlen)
	for i := range n.Hash {
		n.Hash[i] = AuthHash(d[descriptorOffHash+i])
	}
	for i := range n.DH {
		n.DH[i] = DHGroup(d[descriptorOffDH+i])
	}
	return nil
}
