package pdu

import "encoding/binary"

// DataSize is the header length of H2CData and C2HData, in bytes.
const DataSize = 24

// Data is the header of H2CData (section 3.6.2.8) and C2HData (section 3.6.2.9); the data
// follows it at Header.PDO.
type Data struct {
	Header
	CCCID uint16 // the command
	TTAG  uint16 // H2CData: TTAG of the R2T; C2HData: 0
	DATAO uint32 // offset of the data in the command's data, bytes
	DATAL uint32 // length of the data, bytes
}

// Offsets of fields of data PDUs and R2T, from the start of the PDU. An R2T has R2TO and R2TL
// where a data PDU has DATAO and DATAL.
const (
	OffCCCID = 8
	OffTTAG  = 10
	OffDATAO = 12
	OffDATAL = 16
)

// ParseData reads the header of an H2CData or C2HData PDU; b starts with its common header.
func ParseData(b []byte) (Data, error) {
	if len(b) < DataSize {
		return Data{}, shortError("data PDU", len(b), DataSize)
	}
	return Data{
		Header: HeaderAt(b),
		CCCID:  binary.LittleEndian.Uint16(b[OffCCCID:]),
		TTAG:   binary.LittleEndian.Uint16(b[OffTTAG:]),
		DATAO:  binary.LittleEndian.Uint32(b[OffDATAO:]),
		DATAL:  binary.LittleEndian.Uint32(b[OffDATAL:]),
	}, nil
}

// Check checks that the PDU doesn't contradict itself: DATAL must agree with its common header, and
// C2HData that stands for the response (SUCCESS) must be the last.
func (p *Data) Check() *FieldError {
	switch {
	case int64(p.DATAL) != int64(p.DataLen()):
		return Invalid(OffDATAL, "DATAL")
	case p.Type == TypeC2HData && p.Flags&(FlagSuccess|FlagLast) == FlagSuccess:
		return Invalid(OffFlags, "SUCCESS without LAST_PDU")
	}
	return nil
}

// CheckRange checks that the data is the next of a transfer of which from bytes have come, and that it stays before end
// (section 3.3.2).
func (p *Data) CheckRange(from, end int) *FieldError {
	switch {
	case int64(p.DATAO)+int64(p.DATAL) > int64(end):
		return &FieldError{FES: FESOutOfRange, Field: "DATAO and DATAL"}
	case int64(p.DATAO) != int64(from):
		return &FieldError{FES: FESSequence, Field: "DATAO"}
	}
	return nil
}

// Append appends the PDU up to its data.
func (p *Data) Append(b []byte) []byte {
	return appendTransfer(b, p.Header, p.CCCID, p.TTAG, p.DATAO, p.DATAL)
}

// appendTransfer appends a data PDU or an R2T, which share their layout, up to the data.
func appendTransfer(b []byte, h Header, cid, tag uint16, off, length uint32) []byte {
	start := len(b)
	b = h.Append(b)
	b = binary.LittleEndian.AppendUint16(b, cid)
	b = binary.LittleEndian.AppendUint16(b, tag)
	b = binary.LittleEndian.AppendUint32(b, off)
	b = binary.LittleEndian.AppendUint32(b, length)
	return h.end(append(b, 0, 0, 0, 0), start)
}
