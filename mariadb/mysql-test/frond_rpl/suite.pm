package My::Suite::FROND_RPL;

@ISA = qw(My::Suite);

return "No FROND engine: build it by make plugin" unless $ENV{HA_FROND_SO};

sub is_default { 0 }

bless { };
