// Package capture writes what the program's sockets carry into a pcapng file that Wireshark
// opens, without root and without a packet socket.
//
// File.Conn wraps the udp.Conn of a software RNIC, and File.Stream takes the bytes of one
// NVMe/TCP connection; both may go into the same file.
//
// # What is true in the file, and what is made up
//
// Payloads, addresses, ports, traffic class and times are those of the socket calls. Trains
// and coalesced receives are split into their datagrams. Ethernet, IP, UDP and TCP headers are
// made up: MAC addresses are made of the IP addresses, TTL and hop limit are 64. The IPv4
// Identification, which RoCEv2's ICRC covers, is for a datagram sent the one that Linux gives
// it (its index in the train, with DF set); for one received it is recovered from the ICRC,
// and is the index in the coalesced run where that fails. So the ICRCs in the file are right
// exactly where they were right on arrival. The UDP checksum is 0 ("none") over IPv4 and
// computed over IPv6. What a train's sender handed over is recorded before the kernel takes
// it: a train that Send then refuses is in the file too.
//
// Over TCP the handshake and the end of the connection are made up, and so is the cut into
// segments. Sequence numbers count the bytes; where both ends of a connection are in one
// program, only one of them should be recorded.
//
// # Cost and overflow
//
// Recording is one copy of the bytes into a queue in memory; splitting, headers, ICRCs and
// writing are done by a goroutine of the File. The queue holds at most 64 MiB. When it is full,
// because the disk or the reader of a pipe doesn't keep up, what comes is left out and counted,
// as a kernel's capture does it: blocking would turn a slow disk into retransmissions and lost
// connections, which are what captures are made to look into. File.Dropped tells the number,
// Close puts it into the file's interface statistics, and TCP sequence numbers show the gap.
// When writing fails, recording ends, and Close returns the error.
//
// # Concurrency
//
// Any number of goroutines may record. Close waits until everything is written; what is
// recorded later is left out.
package capture
