package wire

import "fmt"

// Opcode is the BTH opcode: the service in the upper three bits, the operation in the lower
// five (IBTA 9.2.1, table 38).
type Opcode uint8

// Opcodes of the reliable connection.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastWithImm    Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyWithImm    Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastWithImm   Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyWithImm   Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAcknowledge        Opcode = 0x11
	RCAtomicAcknowledge  Opcode = 0x12
	RCCmpSwap            Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastWithInv    Opcode = 0x16
	RCSendOnlyWithInv    Opcode = 0x17
	UDSendOnly           Opcode = 0x64
	UDSendOnlyWithImm    Opcode = 0x65
	CNP                  Opcode = 0x81 // congestion notification (RoCEv2, annex A17)
)

const (
	serviceMask = 0xe0
	serviceRC   = 0x00
	serviceUD   = 0x60
)

// Kind is the operation that a packet is part of.
type Kind uint8

// Kinds.
const (
	KindUnknown Kind = iota
	KindSend
	KindWrite
	KindReadRequest
	KindReadResponse
	KindAcknowledge
	KindAtomic // CmpSwap, FetchAdd
	KindAtomicAcknowledge
	KindCNP
	KindSelectiveAck
	KindWriteSend
)

// Headers is a set of extension headers, which follow the BTH in the order of the bits.
type Headers uint16

// Extension headers.
const (
	HasDETH Headers = 1 << iota
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImmDt
	HasIETH
	HasAckPSN
)

// Size returns the total length of the headers in the set, in bytes.
func (h Headers) Size() int {
	n := 0
	for i, size := range [8]int{
		DETHSize, RETHSize, AtomicETHSize, AETHSize, AtomicAckETHSize, ImmDtSize, IETHSize, AckPSNSize,
	} {
		if h&(1<<i) != 0 {
			n += size
		}
	}
	return n
}

type opFlags uint8

const (
	opResponse opFlags = 1 << iota
	opStart
	opEnd
	opEmpty // nothing follows the headers
)

type opInfo struct {
	name       string
	kind       Kind
	flags      opFlags
	headers    Headers
	headerSize uint8 // BTH and extension headers
	fixed      uint8 // the payload size of the opcode; 0 if it varies
}

// Flags that many lines of the table have in common.
const (
	opFirst  = opStart
	opMiddle = opFlags(0)
	opLast   = opEnd
	opOnly   = opStart | opEnd
	opAck    = opResponse | opOnly | opEmpty
)

var opTable = buildOpTable(map[Opcode]opInfo{
	RCSendFirst:          {name: "RC_SEND_FIRST", kind: KindSend, flags: opFirst},
	RCSendMiddle:         {name: "RC_SEND_MIDDLE", kind: KindSend, flags: opMiddle},
	RCSendLast:           {name: "RC_SEND_LAST", kind: KindSend, flags: opLast},
	RCSendLastWithImm:    {name: "RC_SEND_LAST_WITH_IMM", kind: KindSend, flags: opLast, headers: HasImmDt},
	RCSendOnly:           {name: "RC_SEND_ONLY", kind: KindSend, flags: opOnly},
	RCSendOnlyWithImm:    {name: "RC_SEND_ONLY_WITH_IMM", kind: KindSend, flags: opOnly, headers: HasImmDt},
	RCSendLastWithInv:    {name: "RC_SEND_LAST_WITH_INV", kind: KindSend, flags: opLast, headers: HasIETH},
	RCSendOnlyWithInv:    {name: "RC_SEND_ONLY_WITH_INV", kind: KindSend, flags: opOnly, headers: HasIETH},
	RCWriteFirst:         {name: "RC_RDMA_WRITE_FIRST", kind: KindWrite, flags: opFirst, headers: HasRETH},
	RCWriteMiddle:        {name: "RC_RDMA_WRITE_MIDDLE", kind: KindWrite, flags: opMiddle},
	RCWriteLast:          {name: "RC_RDMA_WRITE_LAST", kind: KindWrite, flags: opLast},
	RCWriteLastWithImm:   {name: "RC_RDMA_WRITE_LAST_WITH_IMM", kind: KindWrite, flags: opLast, headers: HasImmDt},
	RCWriteOnly:          {name: "RC_RDMA_WRITE_ONLY", kind: KindWrite, flags: opOnly, headers: HasRETH},
	RCWriteOnlyWithImm:   {name: "RC_RDMA_WRITE_ONLY_WITH_IMM", kind: KindWrite, flags: opOnly, headers: HasRETH | HasImmDt},
	RCReadRequest:        {name: "RC_RDMA_READ_REQUEST", kind: KindReadRequest, flags: opOnly, headers: HasRETH},
	RCReadResponseFirst:  {name: "RC_RDMA_READ_RESPONSE_FIRST", kind: KindReadResponse, flags: opResponse | opFirst, headers: HasAETH},
	RCReadResponseMiddle: {name: "RC_RDMA_READ_RESPONSE_MIDDLE", kind: KindReadResponse, flags: opResponse | opMiddle},
	RCReadResponseLast:   {name: "RC_RDMA_READ_RESPONSE_LAST", kind: KindReadResponse, flags: opResponse | opLast, headers: HasAETH},
	RCReadResponseOnly:   {name: "RC_RDMA_READ_RESPONSE_ONLY", kind: KindReadResponse, flags: opResponse | opOnly, headers: HasAETH},
	RCAcknowledge:        {name: "RC_ACKNOWLEDGE", kind: KindAcknowledge, flags: opAck, headers: HasAETH},
	RCAtomicAcknowledge:  {name: "RC_ATOMIC_ACKNOWLEDGE", kind: KindAtomicAcknowledge, flags: opAck, headers: HasAETH | HasAtomicAckETH},
	RCCmpSwap:            {name: "RC_CMP_SWAP", kind: KindAtomic, flags: opOnly, headers: HasAtomicETH},
	RCFetchAdd:           {name: "RC_FETCH_ADD", kind: KindAtomic, flags: opOnly, headers: HasAtomicETH},
	UDSendOnly:           {name: "UD_SEND_ONLY", kind: KindSend, flags: opOnly, headers: HasDETH},
	UDSendOnlyWithImm:    {name: "UD_SEND_ONLY_WITH_IMM", kind: KindSend, flags: opOnly, headers: HasDETH | HasImmDt},
	CNP:                  {name: "CNP", kind: KindCNP, flags: opOnly, fixed: CNPPayload},
	SelectiveAck:         {name: "SELECTIVE_ACK", kind: KindSelectiveAck, flags: opResponse | opOnly, headers: HasAETH},
	WriteSend:            {name: "RDMA_WRITE_ONLY_SEND", kind: KindWriteSend, flags: opOnly, headers: HasRETH},
	WriteSendWithInv:     {name: "RDMA_WRITE_ONLY_SEND_WITH_INV", kind: KindWriteSend, flags: opOnly, headers: HasRETH | HasIETH},
	WriteSendAck:         {name: "RDMA_WRITE_ONLY_SEND_ACK", kind: KindWriteSend, flags: opOnly, headers: HasRETH | HasAckPSN},
	WriteSendWithInvAck:  {name: "RDMA_WRITE_ONLY_SEND_WITH_INV_ACK", kind: KindWriteSend, flags: opOnly, headers: HasRETH | HasIETH | HasAckPSN},
	SendOnlyAck:          {name: "SEND_ONLY_ACK", kind: KindSend, flags: opOnly, headers: HasAckPSN},
	ReadRequestAck:       {name: "RDMA_READ_REQUEST_ACK", kind: KindReadRequest, flags: opOnly, headers: HasRETH | HasAckPSN},
	SendOnlyWithInvAck:   {name: "SEND_ONLY_WITH_INV_ACK", kind: KindSend, flags: opOnly, headers: HasIETH | HasAckPSN},
})

func buildOpTable(lines map[Opcode]opInfo) (t [256]opInfo) {
	for op, info := range lines {
		info.headerSize = uint8(BTHSize + info.headers.Size())
		t[op] = info
	}
	return t
}

// String returns the specification's name.
func (o Opcode) String() string {
	if info := &opTable[o]; info.kind != KindUnknown {
		return info.name
	}
	return fmt.Sprintf("opcode %#02x", uint8(o))
}

// Kind returns the operation that the packet is part of; KindUnknown for an unknown opcode.
func (o Opcode) Kind() Kind { return opTable[o].kind }

// IsRC reports whether the opcode, known or reserved, belongs to the reliable connection service.
func (o Opcode) IsRC() bool { return o&serviceMask == serviceRC }

// IsUD reports whether the opcode, known or reserved, belongs to the unreliable datagram service.
func (o Opcode) IsUD() bool { return o&serviceMask == serviceUD }

// IsResponse reports whether the packet goes from responder to requester.
func (o Opcode) IsResponse() bool { return opTable[o].flags&opResponse != 0 }

// Starts reports whether the packet begins a message: FIRST or ONLY.
func (o Opcode) Starts() bool { return opTable[o].flags&opStart != 0 }

// Ends reports whether the packet ends a message: LAST or ONLY.
func (o Opcode) Ends() bool { return opTable[o].flags&opEnd != 0 }

// Headers is the set of extension headers that follow the BTH.
func (o Opcode) Headers() Headers { return opTable[o].headers }
