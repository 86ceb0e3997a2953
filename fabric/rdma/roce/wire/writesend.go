package wire

// WriteSend is an RDMA WRITE and the SEND that follows it in one packet, between two software RNICs that have agreed on
// it (package roce); WriteSendWithInv has a SEND with Invalidate. The opcodes are among those that the specification
// leaves to manufacturers (IBTA table 38). The headers are those of both; the payload is the WRITE's data, RETH.Length
// bytes, followed by that of the SEND.
const (
	WriteSend        Opcode = 0xc1
	WriteSendWithInv Opcode = 0xc2
)
