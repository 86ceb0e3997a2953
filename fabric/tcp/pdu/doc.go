// Package pdu is the codec of NVMe/TCP (NVMe/TCP Transport Specification 1.0): the protocol data
// units that follow each other on a TCP connection, and their digests.
//
//	common header 8 | rest of the header | header digest 0 or 4 | padding | data | data digest 0 or 4
//
// It only encodes, decodes and checks: it uses no socket, no clock and no goroutine, and allocates
// only errors. Names are the specification's, and "section" in comments refers to it. Package nvme is
// the codec of queue entries, and package tcp runs connections. All fields are little-endian.
//
// # Receiving
//
// Read HeaderSize bytes, decode them with HeaderAt, and call Rules.Check to find out whether such a
// PDU may come now and whether its header is valid. Header.Head tells how much must be read before
// the PDU can be parsed: check those bytes with Header.CheckDigest, and parse them with the Parse
// function of the type. Data of Header.DataLen bytes begins at Header.PDO, and its digest follows if
// FlagDDGST is set.
//
//	h := pdu.HeaderAt(b)
//	if fault := rules.Check(h); fault != nil {
//		// end the connection with a TermReq that says fault.FES and fault.FEI
//	}
//
// A *FieldError holds what a terminate request says: the field, and what is wrong with it. The owner
// of the connection must check what depends on outstanding commands (CCCID, TTAG, the range of data).
//
// # Sending
//
// Format.Header makes the common header in the agreed format, and Append writes a PDU up to its data:
// header, header digest and padding. Data can be gathered from where it lies, and AppendDigest writes
// the digest that follows it.
//
//	p := pdu.Data{Header: format.Header(pdu.TypeC2HData, len(data)), CCCID: cid, DATAL: uint32(len(data))}
//	b = p.Append(b)
//
// # Concurrency
//
// Functions may be called from any goroutine; values may be used by one goroutine at a time. Nothing
// keeps a reference to its input, except that the Offence of a parsed TermReq refers to the bytes that
// it was parsed from.
package pdu
