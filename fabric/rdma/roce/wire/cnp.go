package wire

// CNPPayload is the length of the reserved zero bytes of a CNP.
const CNPPayload = 16

var cnpZeros [CNPPayload]byte

// MakeCNP fills p with the congestion notification to the QP whose packets met congestion (annex A17.9.3).
func MakeCNP(p *Packet, destQP QPN) {
	p.BTH = BTH{Opcode: CNP, BECN: true, PKey: DefaultPKey, DestQP: destQP}
	p.Payload = cnpZeros[:]
}
