// Package linux tests both programs against the unmodified Linux kernel: its NVMe host against
// nvmetgt, and nvmeinit against its NVMe target, over rdma_rxe and TCP. `make test-linux` runs
// it, as root, on Debian for amd64; without that the tests say that they were skipped. It leaves
// out (testing.Short) what make interop and make power-cuts run as well.
//
// Package lab boots the kernels; see there.
package linux
