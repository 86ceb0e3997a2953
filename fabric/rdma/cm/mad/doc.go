// Package mad is the codec of communication management: the messages that establish and end RDMA connections (IBTA
// volume 1, chapter 12), each a management datagram of 256 bytes, and the private header by which RDMA-CM puts IP
// addresses and ports into a REQ (annex A11).
//
// It only encodes and decodes: no socket, no clock, no goroutine. Names are those of the InfiniBand Architecture
// Specification ("IBTA" in comments), and all fields are big-endian. When a message is sent, and how one is handled, is
// up to package cm.
//
// Parse decodes any message and Append encodes it again, equal except for the bits that the specification reserves; the
// values aren't checked. Both may be called from any goroutine, and don't retain the bytes.
package mad
