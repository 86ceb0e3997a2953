// Package nvme is the language of NVMe over Fabrics: commands and completions, SGL
// descriptors, identify pages, log pages, features, Fabrics commands, properties, NVMe
// Qualified Names and status codes, as the NVMe base specification (1.4 to 2.0), the NVM
// command set and NVMe over Fabrics define them.
//
// It only encodes and decodes: it has no I/O, no goroutines and no locks, and imports nothing
// else of this module. Host and target share its definitions.
//
// # Forms
//
// The structures that every I/O uses are views: [Command], [Completion] and [SGL] are arrays of
// bytes as they lie on the wire, with named accessors, so that they are read and written in
// place and never allocate. Each command has a setter (SetIO, SetIdentify, SetGetLogPage …) that
// builds the whole command except its CID and SGL, which belong to the queue and the transport.
//
// Pages are structs with the specification's field names, and have AppendTo and Parse. Their
// layout is that of the page, pinned at compile time, or by a test where Go pads the struct;
// reserved bytes are blank fields, written as zero and ignored when read. Parse never keeps a
// reference to its input, ignores bytes after the page, and fails with [ErrShort] or
// [ErrMalformed].
//
// All numbers are little-endian, except NGUID and EUI64, which are strings of bytes.
//
// # Statuses as errors
//
// [Status] is the status field of a completion and also an error: errors.Is(err,
// nvme.StatusLBAOutOfRange) matches any error that carries that code. [Completion.ErrFor]
// returns a [StatusError], which names the command and, where there is a remedy, says what to do.
//
// # Concurrency
//
// Values have no hidden state: they are as safe for concurrent use as the underlying bytes.
package nvme
