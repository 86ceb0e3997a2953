// Package verbs is the vocabulary of RDMA: devices, protection domains, memory regions and windows, completion queues,
// queue pairs, work requests, completions and RDMA-CM identifiers, with the names of libibverbs and librdmacm.
//
// It holds types and interfaces only. A provider (the software RNIC in fabric/rdma/roce with fabric/rdma/cm; later
// real RNICs and iWARP) implements Device and CMID; a consumer (the NVMe/RDMA binding, the programs in examples/) is
// written against this package alone. What a provider promises is said here and in the comments of the methods, and
// package verbstest checks it.
//
// # Ownership
//
// Memory named by an SGE belongs to the provider from the post until the completion of the work request, or, if that
// is unsignaled, of a later one on the same queue. The WR slices and their SGLists are read during the call and may be
// reused when it returns. When a key is invalid, or a queue pair destroyed, the provider doesn't access the memory any
// more.
//
// # Concurrency
//
// Every method may be called from any goroutine. Completion and event handlers run in the provider's own context,
// never two at once for the same object; they may call any method, should poll their CQ until it is empty and post in
// batches, and must not block. Work posted from inside a handler may be delayed and sent with other work when the
// handler returns.
//
// # What may be missing
//
// A call that asks for what the device doesn't have returns ErrUnsupported and has no other effect: operations that
// PostSend doesn't know (iWARP has neither atomics nor immediate data), AccessRemoteAtomic without atomics, memory
// windows, AccessOnDemand. A queue pair of iWARP can't be moved to RTR or RTS by Modify: only RDMA-CM connects it.
// DeviceAttr says how much there is of the rest; attributes of packets (ActiveMTU, QPAttr.PathMTU) are 0 where the
// transport has none.
//
// # What transports have in common
//
// Consumers may rely on the following with every provider:
//
//   - Work requests of a send queue begin in order and complete in order. A binding or an invalidation is done when
//     the requests behind it begin. A message arrives after the data of the WRITEs before it, and only its arrival
//     tells the peer that they are there. READs are ordered only by their completions, or by SendFence.
//   - A completed SEND or WRITE no longer needs the consumer's memory, and arrives unless the connection breaks, even
//     if the consumer disconnects or destroys the queue pair. It may arrive after it has completed: iWARP confirms
//     nothing.
//   - The sink of a READ needs AccessLocalWrite and nothing else. A provider whose transport tells the peer where the
//     sink is (iWARP) sees to it that this opens no more than the sink, and no longer than the READ lasts.
//   - A message needs a receive. A transport may wait until there is one (RNRRetryCount), or end the connection at
//     once: consumers post receives before what causes the message, on the accepting side before Accept.
//   - The accepting side may post as soon as Accept returns, even if the transport has to hold it back until the other
//     side has sent something (MPA).
//   - What fails moves its queue pair to ERR, and all other work is flushed. The work request at fault says so in its
//     status, if it hasn't completed before; EventQPFatal or EventQPAccess tells a side that no work request of its
//     own tells. The peer of a queue pair in ERR may not learn of it: the consumer disconnects.
//   - When the peer disconnects, work is flushed before CMDisconnected or after it, but after Disconnect at the
//     latest. CMTimewaitExit follows only where the transport has that state.
//   - Connect carries at least 56 bytes of private data, Accept 196 and Reject 148. The receiver may see zeroes behind
//     them.
//   - A device is the same value in whatever way it is reached, so that consumers can compare. The number of a queue
//     pair that is destroyed may be that of the next one; no completion of the old one comes after Destroy.
package verbs
