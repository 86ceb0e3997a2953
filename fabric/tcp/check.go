package tcp

// role is an end of a connection.
type role uint8

const (
	hostRole role = iota
	controllerRole
)

// senders says who sends a type.
var senders = [numTypes]role{
	TypeICReq: hostRole, TypeH2CTermReq: hostRole, TypeCapsuleCmd: hostRole, TypeH2CData: hostRole,
	TypeICResp: controllerRole, TypeC2HTermReq: controllerRole, TypeCapsuleResp: controllerRole,
	TypeC2HData: controllerRole, TypeR2T: controllerRole,
}

// rules is what a received header is checked against: who we are, and what was agreed in the
// exchange of ICReq and ICResp. They change only between two PDUs.
type rules struct {
	self  role
	ready bool // ICReq and ICResp were exchanged
	// digests that the PDUs carry once ready.
	headerDigest, dataDigest bool
	// align is the alignment of data in received PDUs, in bytes: (HPDA+1)·4 or (CPDA+1)·4.
	align int
}

// check applies the rules of section 3.6.1 and of each PDU's header to h. It returns nil, or
// what to say in a terminate request.
func (ru *rules) check(h Header) *FieldError {
	if h.Type >= numTypes || headerLengths[h.Type] == 0 {
		return invalid(offType, "type")
	}
	if err := ru.checkSequence(h.Type); err != nil {
		return err
	}
	if h.HLEN != headerLengths[h.Type] {
		return invalid(offHLEN, "HLEN")
	}
	switch h.Type {
	case TypeICReq, TypeICResp:
		return checkPlain(h, ICSize, ICSize)
	case TypeH2CTermReq, TypeC2HTermReq:
		return checkPlain(h, TermReqSize, TermReqSize+MaxTermData)
	}
	return ru.checkBody(h)
}

// checkSequence says whether a PDU of type t may come at all now.
func (ru *rules) checkSequence(t Type) *FieldError {
	ic := t == TypeICReq || t == TypeICResp
	term := t == TypeH2CTermReq || t == TypeC2HTermReq
	if senders[t] == ru.self || (!term && ic == ru.ready) {
		return &FieldError{FESSequence, 0, "type"}
	}
	return nil
}

// checkPlain checks a PDU that has no digests, whatever was agreed.
func checkPlain(h Header, least, most uint32) *FieldError {
	if h.Flags&(FlagHDGST|FlagDDGST) != 0 {
		return invalid(offFlags, "digest flags")
	}
	if h.PLEN < least || h.PLEN > most {
		return invalid(offPLEN, "PLEN")
	}
	return nil
}

// checkBody checks a capsule, data or R2T PDU.
func (ru *rules) checkBody(h Header) *FieldError {
	if (h.Flags&FlagHDGST != 0) != ru.headerDigest {
		return invalid(offFlags, "HDGSTF")
	}
	head := uint32(h.HLEN) + uint32(h.headerDigestLen())
	if h.PLEN <= head {
		if needsData(h.Type) || h.PLEN < head {
			return invalid(offPLEN, "PLEN")
		}
		return nil
	}
	if !needsData(h.Type) && h.Type != TypeCapsuleCmd {
		return invalid(offPLEN, "PLEN")
	}
	if (h.Flags&FlagDDGST != 0) != ru.dataDigest {
		return invalid(offFlags, "DDGSTF")
	}
	if uint32(h.PDO) < head || int(h.PDO)%ru.align != 0 {
		return invalid(offPDO, "PDO")
	}
	if h.PLEN <= uint32(h.PDO)+uint32(h.dataDigestLen()) {
		return invalid(offPLEN, "PLEN")
	}
	return nil
}

// needsData says that a PDU of type t makes no sense without data.
func needsData(t Type) bool { return t == TypeH2CData || t == TypeC2HData }

// checkData checks DATAL of a data PDU against its header.
func checkData(p *Data) *FieldError {
	if int64(p.DATAL) != int64(p.DataLen()) {
		return invalid(offDATAL, "DATAL")
	}
	return nil
}
