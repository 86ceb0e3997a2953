package aio

import "unsafe"

// entry is struct io_uring_sqe: one request.
type entry struct {
	opcode   uint8
	flags    uint8
	_        uint16
	fd       int32 // or the index of a registered file
	off      uint64
	addr     uint64 // of the buffer, or of the iovecs
	len      uint32 // bytes, or iovecs
	rwFlags  uint32 // RWF_*
	userData uint64
	bufIndex uint16 // of a registered buffer
	_        uint16
	_        int32
	_        [2]uint64
}

// completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	res      int32 // the system call's result, or a negated error
	_        uint32
}

// Operations (IORING_OP_*).
const (
	ringNop        = 0
	ringReadv      = 1
	ringWritev     = 2
	ringReadFixed  = 4
	ringWriteFixed = 5
	ringRead       = 22
	ringWrite      = 23
)

// fixedFile says that fd is an index of registered files (IOSQE_FIXED_FILE).
const fixedFile = 1 << 0

// Flags of io_uring_setup.
const (
	setupClamp       = 1 << 4
	setupSubmitAll   = 1 << 7
	setupCoopTaskrun = 1 << 8
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

// The sizes that the kernel's interface prescribes.
var (
	_ [64]byte  = [unsafe.Sizeof(entry{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(completion{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcRegister{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcUpdate{})]byte{}
)
