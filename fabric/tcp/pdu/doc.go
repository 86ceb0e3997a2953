// Package pdu is the codec of NVMe/TCP (NVMe/TCP Transport Specification 1.0): the protocol data
// units that travel on a TCP connection, one behind the other, and their digests.
//
//	common header 8 | rest of the header | header digest 0 or 4 | padding | data | data digest 0 or 4
//
// It encodes, decodes and checks only: no socket, no clock, no goroutine, and no allocation but for
// errors. Names are the specification's ("section" in comments); that of the codec of queue entries
// is package nvme. All fields are little-endian. What happens on a connection is package tcp's.
//
// # Receiving
//
// Read HeaderSize bytes, look at them with HeaderAt, and have Rules.Check say whether such a PDU
// may come now and whether it can be right. Header.Head tells how much is to be read before it can
// be understood: check that with Header.CheckDigest, and Parse it. Data of Header.DataLen bytes
// begins at Header.PDO, and its digest follows where FlagDDGST says so.
//
//	h := pdu.HeaderAt(b)
//	if fault := rules.Check(h); fault != nil {
//		// end the connection with a TermReq that says fault.FES and fault.FEI
//	}
//
// A *FieldError is what a terminate request says: the field, and what is wrong with it. What
// depends on the commands that are outstanding (CCCID, TTAG, the range of data) is for the owner of
// the connection to check.
//
// # Sending
//
// Format.Header makes the common header for what was agreed, and Append writes a PDU up to its
// data: header, header digest and padding. The data is gathered from where it lies, and
// AppendDigest ends it.
//
//	p := pdu.Data{Header: format.Header(pdu.TypeC2HData, len(data)), CCCID: cid, DATAL: uint32(len(data))}
//	b = p.Append(b)
//
// # Concurrency
//
// Everything may be used from any goroutine; values belong to one at a time. Nothing is kept, but
// the Offence of a parsed TermReq refers to what it was parsed from.
package pdu
