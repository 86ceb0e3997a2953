package nvme

import "encoding/binary"

// Property is the offset of a controller property in bytes.
type Property uint32

// Properties (NVMe base, figure "Property Definition").
const (
	PropCAP  Property = 0x00
	PropVS   Property = 0x08
	PropCC   Property = 0x14
	PropCSTS Property = 0x1c
	PropNSSR Property = 0x20
	PropCRTO Property = 0x68
)

// Size is the size of the property in bytes: 4 or 8, or 0 if it isn't defined here.
func (p Property) Size() int {
	switch p {
	case PropCAP:
		return 8
	case PropVS, PropCC, PropCSTS, PropNSSR, PropCRTO:
		return 4
	}
	return 0
}

func (p Property) String() string {
	switch p {
	case PropCAP:
		return "CAP"
	case PropVS:
		return "VS"
	case PropCC:
		return "CC"
	case PropCSTS:
		return "CSTS"
	case PropNSSR:
		return "NSSR"
	case PropCRTO:
		return "CRTO"
	}
	return "property " + hexadecimal(uint64(p))
}

const (
	offPropAttrib = 40
	offPropOffset = 44
	offPropValue  = 48
)

// SetPropertyGet makes c a Property Get; the result of its completion is the value.
func (c *Command) SetPropertyGet(p Property) {
	c.startFabrics(FCPropertyGet)
	c.setProperty(p)
}

// SetPropertySet makes c a Property Set.
func (c *Command) SetPropertySet(p Property, v uint64) {
	c.startFabrics(FCPropertySet)
	c.setProperty(p)
	binary.LittleEndian.PutUint64(c[offPropValue:], v)
}

func (c *Command) setProperty(p Property) {
	if p.Size() == 8 {
		c[offPropAttrib] = 1
	}
	binary.LittleEndian.PutUint32(c[offPropOffset:], uint32(p))
}

// Property is the property that Property Get or Property Set names.
func (c *Command) Property() Property {
	return Property(binary.LittleEndian.Uint32(c[offPropOffset:]))
}

// PropertySize is the size that Property Get or Property Set names, in bytes: 4 or 8, or 0 for
// a reserved value.
func (c *Command) PropertySize() int {
	switch c[offPropAttrib] & 7 {
	case 0:
		return 4
	case 1:
		return 8
	}
	return 0
}

// PropertyValue is the value that Property Set writes.
func (c *Command) PropertyValue() uint64 { return binary.LittleEndian.Uint64(c[offPropValue:]) }
