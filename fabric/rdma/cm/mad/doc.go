// Package mad is the codec of communication management: the messages that make and end RDMA
// connections (IBTA volume 1, chapter 12), each a management datagram of 256 bytes, and the private
// header by which RDMA-CM puts IP addresses and ports into a REQ (annex A11).
//
// It encodes and decodes only: no socket, no clock, no goroutine. Names are those of the InfiniBand
// Architecture Specification ("IBTA" in comments), and all fields are big-endian. When a message is
// sent, and what is made of one, is package cm's.
//
// Parse reads any message and Append makes it again, equal but for the bits that the specification
// reserves; what the values mean isn't checked. Both may be used from any goroutine, and keep
// nothing of the bytes.
package mad
