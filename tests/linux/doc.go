// Package linux tests both programs against the unmodified Linux kernel: its NVMe host against nvmetgt, and nvmeinit
// against its NVMe target, over rdma_rxe and TCP. `make test-linux` runs it, as root, on Debian for amd64; otherwise
// the tests report that they were skipped. In short mode (testing.Short) it omits what make interop and make power-cuts
// run in addition.
//
// Package lab boots the kernels; see there.
package linux
