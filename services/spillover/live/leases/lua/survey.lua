-- What there is, for a member to sort out.
return all_stored()
