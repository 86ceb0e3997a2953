package wire

// WriteSend is an RDMA WRITE and the SEND behind it in one packet, between two software RNICs that
// have agreed on it (package roce); WriteSendWithInv has a SEND with Invalidate. The opcodes are of
// those that the specification leaves to manufacturers (IBTA table 38). The headers are those of the
// two; the payload is the WRITE's data, RETH.Length bytes, and then that of the SEND.
const (
	WriteSend        Opcode = 0xc1
	WriteSendWithInv Opcode = 0xc2
)
