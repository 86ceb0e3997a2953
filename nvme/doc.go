// Package nvme is the language of NVMe over Fabrics: commands and completions, SGL
// descriptors, identify pages, log pages, features, Fabrics commands, properties, NVMe
// Qualified Names and status codes, as the NVMe base specification (1.4 to 2.0), the NVM
// command set and NVMe over Fabrics define them.
//
// It encodes and decodes and does nothing else: there is no I/O, no goroutine and no lock in
// it, and it imports nothing else of this module. The target writes what the host reads with
// the same definitions.
//
// # Forms
//
// What every I/O passes is a view: [Command], [Completion] and [SGL] are arrays of bytes as
// they lie on the wire, with named accessors, so that they are read and written in place and
// never allocate. Each command has a setter (SetIO, SetIdentify, SetGetLogPage …) that makes
// the whole command but for its CID and SGL, which belong to the queue and the transport.
//
// Pages are structs with the specification's field names, with AppendTo and Parse. Their
// layout is that of the page, pinned at compile time; reserved bytes are blank fields, written
// as zero and ignored when read. Parse never keeps a reference to its input, ignores bytes
// after the page, and fails with [ErrShort] or [ErrMalformed].
//
// All numbers are little-endian, except NGUID and EUI64, which are strings of bytes.
//
// # Statuses as errors
//
// [Status] is the status field of a completion and an error at once: errors.Is(err,
// nvme.StatusLBAOutOfRange) matches any error that carries that code. [Completion.ErrFor]
// gives a [StatusError], which names the command and says what to do.
//
// # Concurrency
//
// Values have no hidden state: whatever is safe for the underlying bytes is safe here.
package nvme
