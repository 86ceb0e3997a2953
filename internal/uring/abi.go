package uring

import "unsafe"

// SQE is struct io_uring_sqe: one request.
type SQE struct {
	Opcode   Op
	Flags    uint8 // FixedFile
	_        uint16
	FD       int32 // or the index of a registered file
	Off      uint64
	Addr     uint64 // of the buffer, or of the iovecs
	Len      uint32 // bytes, or iovecs
	RWFlags  uint32 // RWF_*
	UserData uint64
	BufIndex uint16 // of a registered buffer
	_        uint16
	_        int32
	_        [2]uint64
}

// CQE is struct io_uring_cqe: one completion.
type CQE struct {
	UserData uint64
	Res      int32 // as the system call's, or an error negated
	Flags    uint32
}

// Op is what a request does.
type Op uint8

// Operations (IORING_OP_*).
const (
	OpNop        Op = 0
	OpReadv      Op = 1
	OpWritev     Op = 2
	OpReadFixed  Op = 4
	OpWriteFixed Op = 5
	OpRead       Op = 22
	OpWrite      Op = 23
)

// FixedFile says that FD is an index of registered files (IOSQE_FIXED_FILE).
const FixedFile = 1 << 0

// Flags of io_uring_setup.
const (
	setupClamp        = 1 << 4
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
)

const (
	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1

	enterGetEvents = 1 << 0

	offSQRing = 0
	offSQEs   = 0x10000000

	registerFiles         = 2
	unregisterFiles       = 3
	registerBuffers2      = 15
	registerBuffersUpdate = 16

	rsrcSparse = 1 << 0
)

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags         uint32
	sqThreadCPU, sqThreadIdle, features uint32
	wqFD                                uint32
	_                                   [3]uint32
	sq                                  sqOffsets
	cq                                  cqOffsets
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	nr, flags  uint32
	_          uint64
	data, tags uint64
}

// rsrcUpdate is struct io_uring_rsrc_update2.
type rsrcUpdate struct {
	offset, _  uint32
	data, tags uint64
	nr, _      uint32
}

// The sizes that the kernel's interface fixes.
var (
	_ [64]byte  = [unsafe.Sizeof(SQE{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(CQE{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcRegister{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcUpdate{})]byte{}
)
