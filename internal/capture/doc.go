// Package capture writes what the program's sockets carry to a pcapng file that Wireshark can
// open, without root and without a packet socket.
//
// File.Conn wraps the udp.Conn of a software RNIC, and File.Stream records the bytes of one
// NVMe/TCP connection; both may go into the same file.
//
// # What is real in the file, and what is made up
//
// Payloads, addresses, ports, traffic class and times are those of the socket calls. Trains and
// coalesced receives are split into their datagrams. Ethernet, IP, UDP and TCP headers are made
// up: MAC addresses are derived from the IP addresses, and TTL and hop limit are 64. The IPv4
// Identification, which RoCEv2's ICRC covers, is the one that Linux gives to a sent datagram
// (its index in the train, with DF set); for a received datagram it is recovered from the ICRC,
// or, if that fails, is the index in the coalesced run. So the ICRCs in the file are valid
// exactly if they were valid on arrival. The UDP checksum is 0 ("none") over IPv4 and computed
// over IPv6. A train is recorded before the kernel takes it, so one that Send then refuses is
// in the file too.
//
// Over TCP the handshake and the end of the connection are made up, and so is the division into
// segments. Sequence numbers count the bytes; if both ends of a connection are in one program,
// only one of them should be recorded.
//
// # Cost and overflow
//
// Recording copies the bytes once, into a queue in memory; splitting, headers, ICRCs and
// writing are done by a goroutine of the File. The queue holds at most 64 MiB. When it is full,
// because the disk or the reader of a pipe doesn't keep up, new records are left out and
// counted, as in a kernel's capture: blocking would turn a slow disk into retransmissions and
// lost connections, which are what captures are made to investigate. File.Dropped returns their
// number, Close writes it to the file's interface statistics, and TCP sequence numbers show the
// gap. When writing fails, recording ends, and Close returns the error.
//
// # Concurrency
//
// Any number of goroutines may record. Close waits until everything is written; anything
// recorded later is left out.
package capture
