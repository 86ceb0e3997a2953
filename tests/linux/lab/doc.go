// Package lab boots Debian's stock kernels under QEMU on a private network, for tests that need
// Linux as the peer.
//
// Prepare installs what the host lacks and makes the images, which stay in the user's cache. An image is an initramfs
// of files of Debian packages: tools with the libraries they need, and kernel modules with those they depend on.
// Isolate moves the program into a network namespace of its own, in which Network creates a bridge; it vanishes with
// the program's last process, so there is nothing to clean up. Boot starts a machine there, Machine.Run runs a shell
// line in it.
//
// The processor is emulated (TCG): the lab doesn't need KVM, and doesn't use it even if it is there.
package lab
