package tcp

import "github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"

// plain is a PDU without digest that is sent once: ICReq, ICResp, TermReq.
type plain struct{ pdu []byte }

func newPlain(pdu []byte) *plain { return &plain{pdu} }

func (m *plain) encode(b *batch) bool {
	if !b.fits(len(m.pdu), 1) {
		return false
	}
	b.commit(append(b.stage, m.pdu...))
	b.pdus[pdu.HeaderAt(m.pdu).Type]++
	return true
}

func (m *plain) written() {}
