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
	opRequest opFlags = 1 << iota
	opResponse
	opStart
	opEnd
	opPayload
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
	opData   = opRequest | opPayload
	opAnswer = opResponse | opPayload
)

var opTable = buildOpTable(map[Opcode]opInfo{
	RCSendFirst:          {name: "RC_SEND_FIRST", kind: KindSend, flags: opData | opFirst},
	RCSendMiddle:         {name: "RC_SEND_MIDDLE", kind: KindSend, flags: opData | opMiddle},
	RCSendLast:           {name: "RC_SEND_LAST", kind: KindSend, flags: opData | opLast},
	RCSendLastWithImm:    {name: "RC_SEND_LAST_WITH_IMM", kind: KindSend, flags: opData | opLast, headers: HasImmDt},
	RCSendOnly:           {name: "RC_SEND_ONLY", kind: KindSend, flags: opData | opOnly},
	RCSendOnlyWithImm:    {name: "RC_SEND_ONLY_WITH_IMM", kind: KindSend, flags: opData | opOnly, headers: HasImmDt},
	RCSendLastWithInv:    {name: "RC_SEND_LAST_WITH_INV", kind: KindSend, flags: opData | opLast, headers: HasIETH},
	RCSendOnlyWithInv:    {name: "RC_SEND_ONLY_WITH_INV", kind: KindSend, flags: opData | opOnly, headers: HasIETH},
	RCWriteFirst:         {name: "RC_RDMA_WRITE_FIRST", kind: KindWrite, flags: opData | opFirst, headers: HasRETH},
	RCWriteMiddle:        {name: "RC_RDMA_WRITE_MIDDLE", kind: KindWrite, flags: opData | opMiddle},
	RCWriteLast:          {name: "RC_RDMA_WRITE_LAST", kind: KindWrite, flags: opData | opLast},
	RCWriteLastWithImm:   {name: "RC_RDMA_WRITE_LAST_WITH_IMM", kind: KindWrite, flags: opData | opLast, headers: HasImmDt},
	RCWriteOnly:          {name: "RC_RDMA_WRITE_ONLY", kind: KindWrite, flags: opData | opOnly, headers: HasRETH},
	RCWriteOnlyWithImm:   {name: "RC_RDMA_WRITE_ONLY_WITH_IMM", kind: KindWrite, flags: opData | opOnly, headers: HasRETH | HasImmDt},
	RCReadRequest:        {name: "RC_RDMA_READ_REQUEST", kind: KindReadRequest, flags: opRequest | opOnly, headers: HasRETH},
	RCReadResponseFirst:  {name: "RC_RDMA_READ_RESPONSE_FIRST", kind: KindReadResponse, flags: opAnswer | opFirst, headers: HasAETH},
	RCReadResponseMiddle: {name: "RC_RDMA_READ_RESPONSE_MIDDLE", kind: KindReadResponse, flags: opAnswer | opMiddle},
	RCReadResponseLast:   {name: "RC_RDMA_READ_RESPONSE_LAST", kind: KindReadResponse, flags: opAnswer | opLast, headers: HasAETH},
	RCReadResponseOnly:   {name: "RC_RDMA_READ_RESPONSE_ONLY", kind: KindReadResponse, flags: opAnswer | opOnly, headers: HasAETH},
	RCAcknowledge:        {name: "RC_ACKNOWLEDGE", kind: KindAcknowledge, flags: opResponse | opOnly, headers: HasAETH},
	RCAtomicAcknowledge:  {name: "RC_ATOMIC_ACKNOWLEDGE", kind: KindAtomicAcknowledge, flags: opResponse | opOnly, headers: HasAETH | HasAtomicAckETH},
	RCCmpSwap:            {name: "RC_CMP_SWAP", kind: KindAtomic, flags: opRequest | opOnly, headers: HasAtomicETH},
	RCFetchAdd:           {name: "RC_FETCH_ADD", kind: KindAtomic, flags: opRequest | opOnly, headers: HasAtomicETH},
	UDSendOnly:           {name: "UD_SEND_ONLY", kind: KindSend, flags: opRequest | opPayload | opOnly, headers: HasDETH},
	UDSendOnlyWithImm:    {name: "UD_SEND_ONLY_WITH_IMM", kind: KindSend, flags: opRequest | opPayload | opOnly, headers: HasDETH | HasImmDt},
	CNP:                  {name: "CNP", kind: KindCNP, flags: opPayload | opOnly, fixed: CNPPayload},
	SelectiveAck:         {name: "SELECTIVE_ACK", kind: KindSelectiveAck, flags: opAnswer | opOnly, headers: HasAETH},
	WriteSend:            {name: "RDMA_WRITE_ONLY_SEND", kind: KindWriteSend, flags: opData | opOnly, headers: HasRETH},
	WriteSendWithInv:     {name: "RDMA_WRITE_ONLY_SEND_WITH_INV", kind: KindWriteSend, flags: opData | opOnly, headers: HasRETH | HasIETH},
	WriteSendAck:         {name: "RDMA_WRITE_ONLY_SEND_ACK", kind: KindWriteSend, flags: opData | opOnly, headers: HasRETH | HasAckPSN},
	WriteSendWithInvAck:  {name: "RDMA_WRITE_ONLY_SEND_WITH_INV_ACK", kind: KindWriteSend, flags: opData | opOnly, headers: HasRETH | HasIETH | HasAckPSN},
	SendOnlyAck:          {name: "SEND_ONLY_ACK", kind: KindSend, flags: opData | opOnly, headers: HasAckPSN},
	ReadRequestAck:       {name: "RDMA_READ_REQUEST_ACK", kind: KindReadRequest, flags: opRequest | opOnly, headers: HasRETH | HasAckPSN},
	SendOnlyWithInvAck:   {name: "SEND_ONLY_WITH_INV_ACK", kind: KindSend, flags: opData | opOnly, headers: HasIETH | HasAckPSN},
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

// IsRequest reports whether the packet goes from requester to responder.
func (o Opcode) IsRequest() bool { return opTable[o].flags&opRequest != 0 }

// IsResponse reports whether the packet goes from responder to requester.
func (o Opcode) IsResponse() bool { return opTable[o].flags&opResponse != 0 }

// Starts reports whether the packet begins a message: FIRST or ONLY.
func (o Opcode) Starts() bool { return opTable[o].flags&opStart != 0 }

// Ends reports whether the packet ends a message: LAST or ONLY.
func (o Opcode) Ends() bool { return opTable[o].flags&opEnd != 0 }

// HasPayload reports whether the packet carries data, possibly none of it.
func (o Opcode) HasPayload() bool { return opTable[o].flags&opPayload != 0 }

// Headers is the set of extension headers that follow the BTH.
func (o Opcode) Headers() Headers { return opTable[o].headers }
