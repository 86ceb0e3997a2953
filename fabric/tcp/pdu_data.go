package tcp

import "encoding/binary"

// DataSize is the header length of H2CData and C2HData, in bytes.
const DataSize = 24

// Data is the header of H2CData (section 3.6.2.8) and C2HData (section 3.6.2.9); the data
// follows it at Header.PDO.
type Data struct {
	Header
	CCCID uint16 // the command
	TTAG  uint16 // H2CData: that of the R2T; C2HData: 0
	DATAO uint32 // offset of the data in the command's data, bytes
	DATAL uint32 // length of the data, bytes
}

// Offsets of fields of data PDUs and R2T, from the start of the PDU.
const (
	offCCCID = 8
	offTTAG  = 10
	offDATAO = 12
	offDATAL = 16
)

// ParseData reads the header of an H2CData or C2HData; b starts with its common header.
func ParseData(b []byte) (Data, error) {
	if len(b) < DataSize {
		return Data{}, shortError("data PDU", len(b), DataSize)
	}
	return Data{
		Header: headerAt(b),
		CCCID:  binary.LittleEndian.Uint16(b[offCCCID:]),
		TTAG:   binary.LittleEndian.Uint16(b[offTTAG:]),
		DATAO:  binary.LittleEndian.Uint32(b[offDATAO:]),
		DATAL:  binary.LittleEndian.Uint32(b[offDATAL:]),
	}, nil
}

// Append appends the header, without digest or data.
func (p *Data) Append(b []byte) []byte {
	return appendTransfer(b, p.Header, p.CCCID, p.TTAG, p.DATAO, p.DATAL)
}

// appendTransfer appends the layout that data PDUs and R2T share.
func appendTransfer(b []byte, h Header, cid, tag uint16, off, length uint32) []byte {
	b = h.Append(b)
	b = binary.LittleEndian.AppendUint16(b, cid)
	b = binary.LittleEndian.AppendUint16(b, tag)
	b = binary.LittleEndian.AppendUint32(b, off)
	b = binary.LittleEndian.AppendUint32(b, length)
	return append(b, 0, 0, 0, 0)
}
