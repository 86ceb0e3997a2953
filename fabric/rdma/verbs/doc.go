// Package verbs is the vocabulary of RDMA: devices, protection domains, memory regions and
// windows, completion queues, queue pairs, work requests, completions and RDMA-CM identifiers,
// with the names of libibverbs and librdmacm.
//
// It holds types and interfaces only. A provider (the software RNIC in fabric/rdma/roce with
// fabric/rdma/cm; later real RNICs and iWARP) implements Device and CMID; a consumer (the
// NVMe/RDMA binding, the programs in examples/) is written against this package alone.
//
// # Ownership
//
// Memory named by an SGE belongs to the provider from the post until the completion of the work
// request, or, if that is unsignaled, of a later one on the same queue. The WR slices and their
// SGLists are read during the call and may be reused when it returns.
//
// # Concurrency
//
// Every method may be called from any goroutine. Completion and event handlers run in the
// provider's own context, never two at once for the same object; they may call any method,
// should poll their CQ until it is empty and post in batches, and must not block. Work posted
// from inside a handler may be delayed and sent with other work when the handler returns.
package verbs
